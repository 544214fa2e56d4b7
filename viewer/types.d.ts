/** How something is drawn by a pen. */
interface Drawn {
  fill?: string | null;
  stroke?: string | null;
  color?: string | null;
  lineWidth?: number;
  alpha?: number;
  radius?: number;
  dash?: number[];
}

/** How a text is drawn by a pen. */
interface Lettered {
  color?: string;
  size?: number;
  bold?: boolean;
  align?: "start" | "center" | "end";
  angle?: number;
}

/** How a picture is drawn by a pen. */
interface Pictured {
  smooth?: boolean;
  alpha?: number;
  cut?: [number, number, number, number] | number[] | null;
}

interface HTMLElement {
  regardView?: object;
}

/** What stands below a view; see `drawLegend`. */
interface Legend {
  ramp?: string | null;
  title?: string;
  even?: number | null;
  scale?: string;
  largest?: number | null;
  beyond?: boolean;
  unit?: string;
  mark?: string;
  samples?: [number, string][] | any[];
  text: string;
  heads?: boolean;
}
