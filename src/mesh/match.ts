/** A compiled glob. */
export type Glob = (name: string) => boolean

/**
 * Compiles a glob over names: `*` is any run of characters, `?` is one, everything else is itself.
 * Names have no folders, so `*` crosses `/` too.
 */
export function glob(pattern: string): Glob {
  if (pattern === '*') return () => true
  if (!/[*?]/.test(pattern)) return (name) => name === pattern
  const source = pattern.replace(/[.+^${}()|[\]\\]/g, '\\$&').replace(/\*+/g, '.*').replace(/\?/g, '.')
  const expression = new RegExp(`^${source}$`, 's')
  return (name) => expression.test(name)
}

/** What a policy applies to. A missing field matches everything. */
export interface Match {
  readonly server?: string | undefined
  readonly tool?: string | undefined
  readonly method?: string | undefined
}

export type Matcher = (server: string, method: string, tool: string | undefined) => boolean

/** Compiles a match; one that names a tool never holds for a call without one. */
export function matcher(match: Match): Matcher {
  const server = glob(match.server ?? '*')
  const method = glob(match.method ?? '*')
  const tool = match.tool === undefined ? undefined : glob(match.tool)
  return (s, m, t) => server(s) && method(m) && (tool === undefined || (t !== undefined && tool(t)))
}
