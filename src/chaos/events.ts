/** An event that an operator will want to read about. Effects on calls are counted and journaled instead. */
export interface ChaosEvent {
  readonly type:
    | 'armed'
    | 'disarmed'
    | 'killed'
    | 'unkilled'
    /** Arming was refused. */
    | 'refused'
    | 'renewed'
    /** The plan was replaced while the process ran. */
    | 'plan'
    /** A fault of the runtime API came or went. */
    | 'injected'
    | 'cleared'
    /** The time of a fault is up. */
    | 'expired'
    | 'engine_error'
    /** A value that a fault made came back in a later call. */
    | 'canary'
    /** An agent's reaction was reported. */
    | 'outcome'
    /** A fault leaves the calls of a server alone, whose list of tools is not known. */
    | 'list_unknown'
    | 'journal_error'
    /** Whether everything is killed cannot be written down for the next process. */
    | 'kill_record_error'
  readonly by?: string
  readonly why?: string
  readonly detail?: Readonly<Record<string, unknown>>
}
