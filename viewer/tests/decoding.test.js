// @ts-check

import assert from "node:assert/strict";
import { test } from "node:test";
import { deflateSync } from "node:zlib";

import { CODE_ERRORS, CODE_VALUES, NAN_CODE, SIGNED_ERRORS, SIGNED_VALUES, decodeBits, decodeNumbers, decodeTile, inflate } from "../modules/decoding.js";

const packed = (bytes) => deflateSync(bytes).toString("base64");

/** The bytes of numbers, all first bytes before all second ones. */
function planes(numbers) {
  const bytes = new Uint8Array(numbers.buffer);
  const size = numbers.BYTES_PER_ELEMENT;
  return Uint8Array.from({ length: bytes.length }, (_, place) => bytes[(place % numbers.length) * size + Math.floor(place / numbers.length)]);
}

test("bytes, numbers and flags come back", async () => {
  assert.deepEqual(await inflate(packed(Uint8Array.of(0, 255, 7))), Uint8Array.of(0, 255, 7));
  for (const numbers of [Float32Array.of(0.1, -3, NaN, Infinity), Float64Array.of(1 / 3, 1e-300, -0)]) {
    const type = numbers instanceof Float64Array ? "float64" : "float32";
    assert.deepEqual(await decodeNumbers({ type, data: packed(planes(numbers)) }), numbers);
  }
  assert.deepEqual(await decodeBits({ shape: [2, 5], data: packed(Uint8Array.of(0b10110000, 0b01000000)) }),
    Uint8Array.of(1, 0, 1, 1, 0, 0, 0, 0, 0, 1));
});

test("a tile is bytes, an array or nested lists, and nothing else", async () => {
  assert.deepEqual(await decodeTile([[[0.5, null]], [[1, -1]]]), Float32Array.of(0.5, NaN, 1, -1));
  const given = Float32Array.of(1, 2);
  assert.equal(await decodeTile(given), given);
  await assert.rejects(decodeTile("0.5"), TypeError);
});

test("a code stands for the square of its step, and its error is told", () => {
  for (let code = 1; code < NAN_CODE; code += 1) {
    const root = (code - 1) / 253;
    const bounds = [Math.max(0, root - 0.5 / 253) ** 2, (root + 0.5 / 253) ** 2];
    assert.ok(bounds.every((bound) => Math.abs(bound - CODE_VALUES[code]) <= CODE_ERRORS[code] + 1e-12), String(code));
  }
  assert.equal(CODE_VALUES[0], 0);
  assert.ok(Number.isNaN(CODE_VALUES[NAN_CODE]));
});

test("a code with a sign stands for the square of its step, and its error is told", () => {
  for (let code = 1; code < NAN_CODE; code += 1) {
    const [sign, root] = code > 127 ? [-1, (code - 128) / 126] : [1, (code - 1) / 126];
    const bounds = [Math.max(0, root - 0.5 / 126) ** 2, (root + 0.5 / 126) ** 2].map((bound) => sign * bound);
    assert.ok(bounds.every((bound) => Math.abs(bound - SIGNED_VALUES[code]) <= SIGNED_ERRORS[code] + 1e-12), String(code));
  }
  assert.equal(SIGNED_VALUES[0], 0);
  assert.ok(Number.isNaN(SIGNED_VALUES[NAN_CODE]));
});
