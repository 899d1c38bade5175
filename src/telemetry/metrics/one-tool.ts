import type { Cell } from './cells.ts'
import type { Spread } from './spread.ts'
import type { Series } from './spread-series.ts'
import type { Tally } from './tally.ts'

type ToolLabel = 'server' | 'tool'

/** The metrics that have series for each tool. */
export interface PerTool {
  readonly toolCalls: Tally<ToolLabel | 'result' | 'arm'>
  readonly toolCallVerdicts: Tally<ToolLabel | 'outcome' | 'verdict' | 'arm'>
  readonly toolCallDuration: Spread<ToolLabel>
  readonly attempts: Tally<ToolLabel | 'outcome' | 'verdict'>
  readonly invalidArguments: Tally<ToolLabel>
  readonly breakerTransitions: Tally<ToolLabel | 'dimension' | 'state'>
}

/** Where a call is counted. */
interface CallCells {
  readonly calls: Cell
  readonly verdicts: Cell
}

/**
 * What alerts and ratios read of attempts. To Prometheus a series that is born with its first failure has never failed:
 * an increase takes two readings. So these begin at 0, with the first attempt of their tool.
 */
const BORN_TOGETHER = [
  ['returned', 'correct'],
  ['returned', 'schema_invalid'],
  ['returned', 'partial_silent'],
  ['returned', 'tool_error'],
  ['rpc_error', 'rpc_error'],
  ['timeout', ''],
  ['transport_error', ''],
] as const

/** The series of one tool, kept at hand: counting a call looks up short words, and no labels. */
export class OneTool {
  readonly labels: { readonly server: string; readonly tool: string }
  readonly #metrics: PerTool
  #duration: Series | undefined
  /** By arm, result and verdict. */
  readonly #calls = new Map<string, Map<string, Map<string, CallCells>>>()
  /** By outcome and verdict. */
  readonly #attempts = new Map<string, Map<string, Cell>>()

  constructor(metrics: PerTool, server: string, tool: string) {
    this.#metrics = metrics
    this.labels = { server, tool }
  }

  /**
   * Counts a call; `seconds` from its arrival to its outcome. `verdict` is empty when no reply came. With `traceId`
   * it may stand for its bucket; `wallMs` is then when it ended, in milliseconds since the Unix epoch.
   */
  countCall(
    result: string,
    verdict: string,
    arm: string,
    seconds: number,
    traceId?: string,
    wallMs?: number,
  ): void {
    const found = within(within(this.#calls, arm), result)
    const cells = found.get(verdict) ?? this.#cellsOf(found, result, verdict, arm)
    cells.calls.value++
    cells.verdicts.value++
    this.#duration ??= this.#metrics.toolCallDuration.series(this.labels)
    this.#duration.observe(seconds, traceId, wallMs)
  }

  /** Counts a try at the server. */
  countAttempt(outcome: string, verdict: string): void {
    const cell = this.#attempts.get(outcome)?.get(verdict) ?? this.#attemptsOf(outcome, verdict)
    cell.value++
  }

  #attemptsOf(outcome: string, verdict: string): Cell {
    if (this.#attempts.size === 0) for (const [end, quality] of BORN_TOGETHER) this.#addAttempts(end, quality)
    return this.#attempts.get(outcome)?.get(verdict) ?? this.#addAttempts(outcome, verdict)
  }

  #addAttempts(outcome: string, verdict: string): Cell {
    const cell = this.#metrics.attempts.cell({ ...this.labels, outcome, verdict })
    within(this.#attempts, outcome).set(verdict, cell)
    return cell
  }

  #cellsOf(found: Map<string, CallCells>, result: string, verdict: string, arm: string): CallCells {
    const { toolCalls, toolCallVerdicts } = this.#metrics
    const cells = {
      calls: toolCalls.cell({ ...this.labels, result, arm }),
      verdicts: toolCallVerdicts.cell({ ...this.labels, outcome: result, verdict, arm }),
    }
    found.set(verdict, cells)
    return cells
  }
}

function within<Value>(map: Map<string, Map<string, Value>>, key: string): Map<string, Value> {
  let found = map.get(key)
  if (found === undefined) {
    found = new Map()
    map.set(key, found)
  }
  return found
}
