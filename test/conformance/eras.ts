/** One set of requirements, and the fixture that meets it when nothing stands in between. */
export interface Era {
  /** A revision of the protocol for which the suite has a set of requirements. */
  readonly requirements: string
  /** Script beside the compiled fixtures; prints `listening URL` when it is ready. */
  readonly fixture: string
}

/** Everything that the gateway is held to. */
export const eras: readonly Era[] = [{ requirements: '2025-11-25', fixture: 'conformance-server.js' }]
