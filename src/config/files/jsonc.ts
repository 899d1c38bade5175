const COMMENT_OR_STRING = /"(?:[^"\\]|\\.)*"|\/\/[^\n\r]*|\/\*[\s\S]*?\*\//g

/** Blanks the comments that editors allow in JSON, so that YAML can read the rest and every position stays. */
export function blankComments(json: string): string {
  return json.replace(COMMENT_OR_STRING, (match) =>
    match.startsWith('"') ? match : match.replace(/[^\n\r]/g, ' '),
  )
}
