/** Why spans were lost. */
export type LossCause =
  /** More of them waited than may. */
  | 'queue_full'
  /** The collector did not take them. */
  | 'export_failed'
  /** The gateway ended before the collector had taken them. */
  | 'shutdown'

/** Told what became of spans, by how many. */
export interface SpanCounts {
  exported(count: number): void
  dropped(count: number, cause: LossCause): void
}
