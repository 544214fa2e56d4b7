// @ts-check

export function newCanvas(width, height) {
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(1, Math.round(width));
  canvas.height = Math.max(1, Math.round(height));
  return canvas;
}

/** Writes pixels into a new canvas; `paint(data)` fills red, green, blue, alpha. */
export function pixelCanvas(width, height, paint) {
  const canvas = newCanvas(width, height);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  paint(image.data);
  context.putImageData(image, 0, 0);
  return canvas;
}

export function imageCanvas(bytes, width, height) {
  return pixelCanvas(width, height, (data) => {
    for (let pixel = 0; pixel < width * height; pixel += 1) {
      for (let channel = 0; channel < 3; channel += 1) data[4 * pixel + channel] = bytes[3 * pixel + channel];
      data[4 * pixel + 3] = 255;
    }
  });
}

/** Shades of grey, the lowest frequency at the bottom, dark for loud as in printed spectrograms. */
export function spectrogramCanvas(bytes, bins, frames) {
  return pixelCanvas(frames, bins, (data) => {
    for (let bin = 0; bin < bins; bin += 1) {
      for (let frame = 0; frame < frames; frame += 1) {
        const pixel = 4 * ((bins - 1 - bin) * frames + frame);
        data[pixel] = data[pixel + 1] = data[pixel + 2] = 255 - 0.9 * bytes[bin * frames + frame];
        data[pixel + 3] = 255;
      }
    }
  });
}
