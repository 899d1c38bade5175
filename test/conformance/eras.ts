/** A set of requirements, and a fixture that meets the requirements without the gateway. */
export interface Era {
  /** A protocol revision with a set of requirements in the suite. */
  readonly requirements: string
  /** Script beside the compiled fixtures; prints `listening URL` when ready. */
  readonly fixture: string
}

/** Revisions with a fixture, and whether the gateway speaks each. */
const known: readonly (Era & { readonly spoken: boolean })[] = [
  { requirements: '2025-11-25', fixture: 'conformance-server.js', spoken: true },
  { requirements: '2026-07-28', fixture: 'modern-server.js', spoken: true },
  { requirements: '2025-11-25', fixture: 'dual-server.js', spoken: true },
  { requirements: '2026-07-28', fixture: 'dual-server.js', spoken: true },
]

/** All revisions that the gateway speaks. */
export const eras: readonly Era[] = known.filter(({ spoken }) => spoken)
