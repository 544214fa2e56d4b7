// @ts-check

const LENGTH = 280; // milliseconds

const MOST = 24;

/** Lets the numbers of the stations before, the nearest first, fly to where they stand in another; off where motion is unwanted. */
export function fly(before, to) {
  if (globalThis.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const sources = new Map(before.flatMap((one) => [...one.querySelectorAll("[data-out]")]).map((one) => [one.dataset.out, one]));
  for (const target of [...to.querySelectorAll("[data-in]")].slice(0, MOST)) {
    const source = sources.get(target.dataset.in);
    if (!source) continue;
    const [start, end] = [source.getBoundingClientRect(), target.getBoundingClientRect()];
    if (!start.width || !end.width) continue;
    const moved = `translate(${start.left - end.left}px, ${start.top - end.top}px)`;
    target.animate([{ transform: moved, opacity: 0.4 }, { transform: "none", opacity: 1 }], { duration: LENGTH, easing: "ease-out" });
  }
}
