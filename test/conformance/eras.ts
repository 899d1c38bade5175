/** One set of requirements, and a fixture that meets it when nothing stands in between. */
export interface Era {
  /** A revision of the protocol for which the suite has a set of requirements. */
  readonly requirements: string
  /** Script beside the compiled fixtures; prints `listening URL` when it is ready. */
  readonly fixture: string
}

/** Revisions that there is a fixture for, and whether the gateway speaks them. */
const known: readonly (Era & { readonly spoken: boolean })[] = [
  { requirements: '2025-11-25', fixture: 'conformance-server.js', spoken: true },
  { requirements: '2026-07-28', fixture: 'modern-server.js', spoken: true },
  { requirements: '2025-11-25', fixture: 'dual-server.js', spoken: true },
  { requirements: '2026-07-28', fixture: 'dual-server.js', spoken: true },
]

/** Everything that the gateway is held to. */
export const eras: readonly Era[] = known.filter(({ spoken }) => spoken)
