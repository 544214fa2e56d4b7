// @ts-check

/** The largest patch of a label, in pixels. */
const LARGEST = 40;

/**
 * The size at which a position of a grid is shown by its own pixels.
 * @param {any} axis an Axis
 * @param {number[]} group first position, and the one after the last
 * @param {number} height the room
 * @returns {{width: number, height: number} | null} null where there is no picture, or no room for it
 */
export function patchSize(axis, [position], height) {
  if (axis.kind !== "grid" || !axis.picture || height < 10) return null;
  const pixels = axis.pixels(position);
  if (!pixels) return null;
  const high = Math.min(height, LARGEST);
  return { width: Math.min(2 * high, Math.max(high / 2, (high * (pixels[2] - pixels[0])) / (pixels[3] - pixels[1]))), height: high };
}

/** The pixels of a position of a grid. */
export function drawPatch(pen, axis, position, x, y, { width, height }, theme) {
  pen.picture(axis.picture, x, y, width, height, { smooth: true, cut: pictureCut(axis, position) });
  pen.rect(x, y, width, height, { stroke: theme.border });
}

/** A position's part of the picture, which may have fewer pixels than the image had: x, y, width, height. */
function pictureCut(axis, position) {
  const [x0, y0, x1, y1] = axis.pixels(position);
  const [width, height] = axis.entry.size;
  const [across, down] = [axis.picture.width / width, axis.picture.height / height];
  return [x0 * across, y0 * down, (x1 - x0) * across, (y1 - y0) * down];
}
