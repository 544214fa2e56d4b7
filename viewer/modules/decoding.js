// @ts-check

const ROOT_STEPS = 253;

export const NAN_CODE = 255;

/** The weights of all codes relative to the maximum, and the largest error of each. */
export const CODE_VALUES = Float64Array.from({ length: 256 }, (_, code) =>
  (code === NAN_CODE ? NaN : (Math.max(code - 1, 0) / ROOT_STEPS) ** 2));

export const CODE_ERRORS = Float64Array.from({ length: 256 }, (_, code) =>
  (code === 0 || code === NAN_CODE ? 0 : Math.max(code - 1, 0) / ROOT_STEPS ** 2 + 0.25 / ROOT_STEPS ** 2));

/** Steps of weights with a sign: codes up to 127 are above 0, later ones below. */
const SIGNED_STEPS = 126;

const signedPart = (code) => Math.max(code - 1, 0) % (SIGNED_STEPS + 1) / SIGNED_STEPS;

/** The same of weights with a sign. */
export const SIGNED_VALUES = Float64Array.from({ length: 256 }, (_, code) =>
  (code === NAN_CODE ? NaN : (code > SIGNED_STEPS + 1 ? -1 : 1) * signedPart(code) ** 2));

export const SIGNED_ERRORS = Float64Array.from({ length: 256 }, (_, code) =>
  (code === 0 || code === NAN_CODE ? 0 : (signedPart(code) + 0.25 / SIGNED_STEPS) / SIGNED_STEPS));

/** Base64 of deflated bytes → the bytes. */
export async function inflate(text) {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let place = 0; place < binary.length; place += 1) bytes[place] = binary.charCodeAt(place);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/** Exact numbers, which travel as planes of bytes. */
export async function decodeNumbers(entry) {
  const planes = await inflate(entry.data);
  const size = entry.type === "float64" ? 8 : 4;
  const count = planes.length / size;
  const bytes = new Uint8Array(planes.length);
  for (let plane = 0; plane < size; plane += 1) {
    for (let place = 0; place < count; place += 1) bytes[place * size + plane] = planes[plane * count + place];
  }
  return size === 8 ? new Float64Array(bytes.buffer) : new Float32Array(bytes.buffer);
}

/** A sound, whose samples travel as differences, all low bytes first. */
export async function decodeSound({ rate, samples: count, data }) {
  const bytes = await inflate(data);
  const samples = new Int16Array(count);
  for (let place = 0, before = 0; place < count; place += 1) {
    before += bytes[place] | (bytes[count + place] << 8);
    samples[place] = before;
  }
  return { samples, rate };
}

/** Booleans as bytes of 0 and 1. */
export async function decodeBits(entry) {
  const packed = await inflate(entry.data);
  const count = entry.shape.reduce((product, length) => product * length, 1);
  return Uint8Array.from({ length: count }, (_, place) => (packed[place >> 3] >> (7 - (place & 7))) & 1);
}

/**
 * What `options.fetchTile` may give: {type, shape, data}, a typed array, or nested lists; null is NaN.
 * @returns {Promise<any>}
 */
export async function decodeTile(answer) {
  if (answer && typeof answer === "object" && typeof answer.data === "string") return decodeNumbers(answer);
  if (ArrayBuffer.isView(answer)) return answer;
  if (!Array.isArray(answer)) throw new TypeError("fetchTile must give numbers");
  return Float32Array.from(answer.flat(Infinity), (value) => (value === null ? NaN : Number(value)));
}
