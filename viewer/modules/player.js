// @ts-check

/** The lowest rate that browsers play, in samples a second. */
const LOWEST_RATE = 3000;

/** A sound at a rate that browsers play: between the samples of a slower one are others on straight lines. */
export function playable({ samples, rate }) {
  const factor = Math.ceil(LOWEST_RATE / rate);
  if (!(factor > 1)) return { samples, rate };
  const more = Float32Array.from({ length: samples.length * factor }, (_, place) => {
    const [before, part] = [Math.floor(place / factor), (place % factor) / factor];
    return samples[before] * (1 - part) + (samples[before + 1] ?? samples[before]) * part;
  });
  return { samples: more, rate: rate * factor };
}

/** Plays the sound of an axis by Web Audio, which needs no network: the samples come with the payload. */
export class Player {
  /** @param {() => void} changed called when it starts and ends */
  constructor(changed) {
    this.changed = changed;
    this.axis = null;
    this.source = null;
    this.offset = 0; // seconds of the sound at which it was started
    this.begun = 0; // the clock of the context at that time
    this.context = null;
  }

  get playing() {
    return this.source !== null;
  }

  /** Whether the sound of an axis is being played. */
  plays(axis) {
    return this.playing && this.axis === axis;
  }

  /** The place in the sound, in seconds; null while nothing plays. */
  get time() {
    if (!this.source || !this.context) return null;
    return Math.min(this.offset + this.context.currentTime - this.begun, this.axis.soundSeconds);
  }

  /** Plays from a time on. */
  start(axis, seconds = 0) {
    this.stop();
    const { samples, rate } = playable(axis.sound);
    this.context ??= new AudioContext();
    this.context.resume();
    const buffer = this.context.createBuffer(1, samples.length, rate);
    buffer.copyToChannel(Float32Array.from(samples, (sample) => sample / 32768), 0);
    const source = this.context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.context.destination);
    source.onended = () => { if (this.source === source) this.stop(); };
    Object.assign(this, { axis, source, offset: seconds, begun: this.context.currentTime });
    source.start(0, seconds);
    this.changed();
  }

  stop() {
    const { source } = this;
    this.source = null;
    if (!source) return;
    source.stop();
    this.changed();
  }

  /** Gives up the audio device. */
  destroy() {
    this.stop();
    this.context?.close();
  }
}
