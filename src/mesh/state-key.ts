/**
 * Whose state it is. State whose key is the same in every part but `replica` is the same state, in every generation.
 */
export interface StateKey {
  /** What kind of state: the name of the policy that keeps it, as a rule. */
  readonly kind: string
  readonly set: string
  readonly server: string
  readonly tool?: string | undefined
  /** Which of the server's other requests; see `Scope.overrides`. */
  readonly overrides?: readonly string[] | undefined
  /** Which endpoint of the server, wherever it stands in the config; see `Scope.endpoints`. */
  readonly endpoint?: string | undefined
  /** Where that endpoint stands in the config now, from 0: for people, and no part of what makes the state the same. */
  readonly replica?: number | undefined
  /** The settings that made it: others begin anew. */
  readonly config?: unknown
}
