// @ts-check

const LENGTH = 280; // milliseconds

const MOST = 24;

/** Lets the numbers of one station fly to where they stand in another; nothing moves where the reader wants it still. */
export function fly(from, to) {
  if (!from || !to || globalThis.matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  const sources = new Map([...from.querySelectorAll("[data-out]")].map((one) => [one.dataset.out, one]));
  for (const target of [...to.querySelectorAll("[data-in]")].slice(0, MOST)) {
    const source = sources.get(target.dataset.in);
    if (!source) continue;
    const [start, end] = [source.getBoundingClientRect(), target.getBoundingClientRect()];
    if (!start.width || !end.width) continue;
    const moved = `translate(${start.left - end.left}px, ${start.top - end.top}px)`;
    target.animate([{ transform: moved, opacity: 0.4 }, { transform: "none", opacity: 1 }], { duration: LENGTH, easing: "ease-out" });
  }
}
