export type Glob = (name: string) => boolean

/** Whether a pattern may match more than its own text. */
export const isGlob = (pattern: string): boolean => /[*?]/.test(pattern)

/** Compiles a glob: `*` is any run of characters (even `/`: names have no folders), `?` is any single character. */
export function glob(pattern: string): Glob {
  if (pattern === '*') return () => true
  if (!isGlob(pattern)) return (name) => name === pattern
  return (name) => holds(pattern, name)
}

/**
 * Whether a name matches a glob. Backtracks to the last `*` only: at most pattern × name steps. A regular expression
 * would try all combinations.
 */
function holds(pattern: string, name: string): boolean {
  let at = 0
  let star = -1
  let retry = 0
  for (let i = 0; i < name.length;) {
    const wanted = pattern[at]
    if (wanted === '*') {
      star = at++
      retry = i
    } else if (wanted === '?' || (wanted !== undefined && wanted === name[i])) {
      at++
      i++
    } else if (star === -1) return false
    else {
      at = star + 1
      i = ++retry
    }
  }
  while (pattern[at] === '*') at++
  return at === pattern.length
}

/** Whether some name matches both globs, in pattern × pattern steps. */
export function globsMeet(one = '*', other = '*'): boolean {
  // Before row `i`, `follow[j]` is true when some text matches both `one` from `i + 1` on and `other` from `j` on.
  let follow: boolean[] = []
  for (let i = one.length; i >= 0; i--) {
    const before: boolean[] = []
    for (let j = other.length; j >= 0; j--) {
      const [a, b] = [one[i], other[j]]
      if (a === '*' || b === '*') before[j] = before[j + 1] === true || follow[j] === true
      else if (a === undefined || b === undefined) before[j] = a === b
      else before[j] = (a === b || a === '?' || b === '?') && follow[j + 1] === true
    }
    follow = before
  }
  return follow[0] === true
}

/** The calls that a policy applies to. A missing field matches everything. */
export interface Match {
  readonly server?: string | undefined
  readonly tool?: string | undefined
  readonly method?: string | undefined
}

export type Matcher = (server: string, method: string, tool: string | undefined) => boolean

/**
 * Compiles a match. Returns a function that is true for matching calls. A match with a tool never matches a call
 * without a tool.
 */
export function matcher(match: Match): Matcher {
  const server = glob(match.server ?? '*')
  const method = glob(match.method ?? '*')
  const tool = match.tool === undefined ? undefined : glob(match.tool)
  return (s, m, t) => server(s) && method(m) && (tool === undefined || (t !== undefined && tool(t)))
}
