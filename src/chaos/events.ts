/** An event for operators. Effects on calls are counted and journaled instead. */
export interface ChaosEvent {
  readonly type:
    | 'armed'
    | 'disarmed'
    | 'killed'
    | 'unkilled'
    | 'refused'
    | 'renewed'
    /** The plan was replaced while the process ran. */
    | 'plan'
    /** A runtime API fault was added or removed. */
    | 'injected'
    | 'cleared'
    | 'expired'
    | 'engine_error'
    /** A later call contained a value made by a fault. */
    | 'canary'
    /** An agent's reaction was reported. */
    | 'outcome'
    /** A fault spares a server's calls because the server's tool list is unknown. */
    | 'list_unknown'
    | 'journal_error'
    /** The kill state cannot be written down for the next process. */
    | 'kill_record_error'
  readonly by?: string
  readonly why?: string
  readonly detail?: Readonly<Record<string, unknown>>
}
