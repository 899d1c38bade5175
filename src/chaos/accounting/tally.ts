/** What became of an injected fault, as the agent saw it. */
export type Fate =
  /** The mesh recovered: the agent never knew. */
  | 'masked'
  /** An error, or word that something is missing, reached the agent: it can fail safely. */
  | 'surfaced'
  /** A corrupted reply reached the agent, looking fine. */
  | 'escaped'

/** What the agent did next, as somebody reported it or a canary showed. */
export type AgentOutcome = 'safe' | 'silent' | 'unknown'

/** The counters of one fault. */
export interface Tally {
  /** Calls that it was decided about. */
  decided: number
  /** Calls that it was done to. */
  hits: number
  /** Calls that it would have been done to, in shadow mode. */
  shadowed: number
  /** Calls that it would have held past `maxConcurrent`. */
  overflow: number
  /** Calls on which there was nothing for it to do. */
  notApplicable: number
  masked: number
  surfaced: number
  escaped: number
  safe: number
  silent: number
  unknown: number
}

export const newTally = (): Tally => ({
  decided: 0,
  hits: 0,
  shadowed: 0,
  overflow: 0,
  notApplicable: 0,
  masked: 0,
  surfaced: 0,
  escaped: 0,
  safe: 0,
  silent: 0,
  unknown: 0,
})
