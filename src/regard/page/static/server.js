// @ts-check
// Requests to the server of the page.

import { say } from "./viewer.js";

/** What the server answers to a body; null where a newer request replaced this one; throws an Error with the server's message. */
export function ask(path, body, signal) {
  return post(path, "application/json", JSON.stringify(body), signal);
}

/** The same for a body of any type. */
export async function post(path, type, body, signal) {
  let response;
  try {
    response = await fetch(path, { method: "POST", headers: { "Content-Type": type }, body, signal });
  } catch {
    if (signal?.aborted) return null;
    throw new Error(say("pageNoServer"));
  }
  const failed = { error: say("pageStatus", { status: response.status }) };
  const found = await response.json().catch(() => failed);
  if (found.replaced) return null;
  if (!response.ok) throw new Error(found.error ?? failed.error);
  return found;
}
