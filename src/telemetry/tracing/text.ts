/** Longest text of an agent or a server that an attribute holds, in UTF-16 code units. */
const LONGEST = 256

/** Longest arguments and results, where they are recorded at all. */
export const LONGEST_PAYLOAD = 4_096

/** The beginning of a text that anybody may have chosen: a batch of spans is no place for a megabyte. */
export function clipped(text: string, longest: number = LONGEST): string {
  return text.length > longest ? text.slice(0, longest) : text
}
