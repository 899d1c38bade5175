import type { Labels } from './format.ts'
import type { Series, HistogramSeries, Histogram, Counter } from './instruments.ts'
import { labelValue, OTHER } from './label-value.ts'
import type { Operations } from './operations.ts'

/** A function that returns true when a tool is in its server's catalog. */
export type IsListed = (server: string, tool: string) => boolean

/** Number of calls without a free place between two searches for removed tools. */
const SWEEP_EVERY = 256

interface OneServer {
  readonly tools: Map<string, OneTool>
  readonly other: OneTool
  inVain: number
}

/**
 * The series of tools. Only tools listed by their server get separate series, up to a limit per server. All other tools
 * share `_other`. At the limit, removes the series of tools that are no longer listed, so that new tools get separate
 * series.
 */
export class ToolSeries {
  /** Most tools of a server with separate series. */
  limit = 500
  readonly #metrics: PerTool
  readonly #all: readonly { forget(isGone: (labels: Labels) => boolean): void }[]
  readonly #operations: Operations | undefined
  readonly #servers = new Map<string, OneServer>()

  /**
   * `more`: other metrics with the labels `server` and `tool`. Series of removed tools are also removed from `more` and
   * `operations`.
   */
  constructor(metrics: PerTool, more: readonly Counter<string>[] = [], operations?: Operations) {
    const { toolCalls, toolCallVerdicts, toolCallDuration, attempts } = metrics
    this.#metrics = metrics
    this.#operations = operations
    this.#all = [toolCalls, toolCallVerdicts, toolCallDuration, attempts, ...more]
  }

  get servers(): Iterable<string> {
    return this.#servers.keys()
  }

  /** Returns the series of a tool. Do not keep a reference, because the series may be removed. */
  of(server: string, tool: string, isListed: IsListed): OneTool {
    const known = this.#servers.get(server)
    return known?.tools.get(tool) ?? this.#first(server, tool, known, isListed)
  }

  /** Creates an arm's series at 0, for each tool called so far whose calls may be in the arm. */
  begin(arm: string, takes: (server: string, tool: string) => boolean): void {
    for (const [server, { tools }] of this.#servers)
      for (const [tool, series] of tools) if (takes(server, tool)) series.begin(arm)
  }

  /** Removes all series of removed arms. */
  forgetArms(isGone: (arm: string) => boolean): void {
    for (const { tools, other } of this.#servers.values())
      for (const tool of [other, ...tools.values()]) tool.forgetArms(isGone)
    this.#remove(({ arm }) => arm !== undefined && isGone(arm))
  }

  /** Removes all series of a server. */
  forget(server: string): void {
    if (this.#servers.delete(server)) this.#remove((labels) => labels.server === server)
  }

  #first(server: string, tool: string, known: OneServer | undefined, isListed: IsListed): OneTool {
    const { tools, other } = known ?? this.#add(server)
    if (!isListed(server, tool) || !this.#hasRoom(server, isListed)) return other
    const series = new OneTool(this.#metrics, server, labelValue(tool), this.#operations)
    tools.set(tool, series)
    return series
  }

  #add(server: string): OneServer {
    const added = {
      tools: new Map(),
      other: new OneTool(this.#metrics, server, OTHER, this.#operations),
      inVain: 0,
    }
    this.#servers.set(server, added)
    return added
  }

  #hasRoom(server: string, isListed: IsListed): boolean {
    const known = this.#servers.get(server)
    if (known === undefined || known.tools.size < this.limit) return true
    if (known.inVain++ % SWEEP_EVERY !== 0) return false
    const gone = new Set<string>()
    for (const [tool, { labels }] of known.tools) {
      if (isListed(server, tool)) continue
      gone.add(labels.tool)
      known.tools.delete(tool)
    }
    if (gone.size === 0) return false
    this.#operations?.forget(server, gone)
    this.#remove((labels) => labels.server === server && gone.has(labels.tool!))
    return known.tools.size < this.limit
  }

  /** Removes series from all metrics, in a single pass for each metric. Later counts in a removed series are lost. */
  #remove(isGone: (labels: Labels) => boolean): void {
    for (const metric of this.#all) metric.forget(isGone)
  }
}

type ToolLabel = 'server' | 'tool'

/** The metrics with series for each tool. */
export interface PerTool {
  readonly toolCalls: Counter<ToolLabel | 'result' | 'arm'>
  readonly toolCallVerdicts: Counter<ToolLabel | 'outcome' | 'verdict' | 'arm'>
  readonly toolCallDuration: Histogram<ToolLabel | 'arm'>
  readonly attempts: Counter<ToolLabel | 'outcome' | 'verdict' | 'arm'>
}

interface CallSeries {
  readonly calls: Series
  readonly verdicts: Series
}

/**
 * The series of attempts that alerts and ratios read, by outcome and verdict. Created together at 0, because Prometheus
 * needs two readings for an increase: a series created at its first failure would show no increase. Created with the
 * first attempt of their tool; in an arm, as soon as the arm runs and the tool has been called.
 */
const ATTEMPTS_BORN_TOGETHER = [
  ['returned', 'unchecked'],
  ['returned', 'correct'],
  ['returned', 'schema_invalid'],
  ['returned', 'partial_silent'],
  ['returned', 'tool_error'],
  ['rpc_error', 'rpc_error'],
  ['timeout', ''],
  ['transport_error', ''],
] as const

/**
 * The series of calls created together at 0. A ratio of attempts to calls then misses a tool's first call in both
 * numbers.
 */
const CALLS_BORN_TOGETHER = [...ATTEMPTS_BORN_TOGETHER, ['rejected', '']] as const

/** The series of a tool, for calls outside of arms and for each arm. */
export class OneTool {
  readonly labels: { readonly server: string; readonly tool: string }
  /** The tool's durations by OpenTelemetry's conventions; undefined when off. */
  readonly operations: ReturnType<Operations['ofTool']> | undefined
  readonly #metrics: PerTool
  readonly #plain: ArmSeries
  readonly #arms = new Map<string, ArmSeries>()

  constructor(metrics: PerTool, server: string, tool: string, operations: Operations | undefined) {
    this.#metrics = metrics
    this.operations = operations?.ofTool(server, tool)
    this.labels = { server, tool }
    this.#plain = new ArmSeries(metrics, { server, tool, arm: '' })
  }

  /**
   * Counts a call. `seconds`: the time from its arrival to its outcome. `verdict` is empty without a reply. With
   * `traceId`, the call may become the exemplar of its bucket; `wallMs` is then the end of the call, in milliseconds
   * since the Unix epoch.
   */
  countCall(
    result: string,
    verdict: string,
    arm: string,
    seconds: number,
    traceId?: string,
    wallMs?: number,
  ): void {
    const series = arm === '' ? this.#plain : this.#in(arm)
    series.countCall(result, verdict)
    series.duration.observe(seconds, traceId, wallMs)
  }

  /** Counts an attempt at the server. */
  countAttempt(outcome: string, verdict: string, arm: string): void {
    const series = arm === '' ? this.#plain : this.#in(arm)
    series.countAttempt(outcome, verdict)
  }

  /** Creates the series of an arm at 0; does nothing if the series exist. */
  begin(arm: string): void {
    if (!this.#arms.has(arm)) this.#in(arm).begin()
  }

  /** Drops the references to series of removed arms. */
  forgetArms(isGone: (arm: string) => boolean): void {
    for (const arm of this.#arms.keys()) if (isGone(arm)) this.#arms.delete(arm)
  }

  #in(arm: string): ArmSeries {
    let series = this.#arms.get(arm)
    if (series === undefined) {
      series = new ArmSeries(this.#metrics, { ...this.labels, arm })
      this.#arms.set(arm, series)
    }
    return series
  }
}

/**
 * The series of a tool in one arm or outside of arms, cached by outcome and verdict. So counting a call needs no search
 * by labels.
 */
class ArmSeries {
  readonly #metrics: PerTool
  readonly #labels: Readonly<Record<ToolLabel | 'arm', string>>
  #duration: HistogramSeries | undefined
  readonly #calls = new Map<string, Map<string, CallSeries>>()
  readonly #attempts = new Map<string, Map<string, Series>>()

  constructor(metrics: PerTool, labels: Readonly<Record<ToolLabel | 'arm', string>>) {
    this.#metrics = metrics
    this.#labels = labels
  }

  get duration(): HistogramSeries {
    return (this.#duration ??= this.#metrics.toolCallDuration.series(this.#labels))
  }

  /** Creates at 0 the series by which arms are compared. */
  begin(): void {
    this.#beginCalls()
    this.#beginAttempts()
    void this.duration
  }

  countCall(result: string, verdict: string): void {
    const series = this.#calls.get(result)?.get(verdict) ?? this.#callsOf(result, verdict)
    series.calls.value++
    series.verdicts.value++
  }

  countAttempt(outcome: string, verdict: string): void {
    const series = this.#attempts.get(outcome)?.get(verdict) ?? this.#attemptsOf(outcome, verdict)
    series.value++
  }

  #attemptsOf(outcome: string, verdict: string): Series {
    if (this.#attempts.size === 0) this.#beginAttempts()
    return this.#attempts.get(outcome)?.get(verdict) ?? this.#addAttempts(outcome, verdict)
  }

  #callsOf(result: string, verdict: string): CallSeries {
    if (this.#calls.size === 0) this.#beginCalls()
    return this.#calls.get(result)?.get(verdict) ?? this.#addCalls(result, verdict)
  }

  #beginCalls(): void {
    for (const [result, verdict] of CALLS_BORN_TOGETHER) this.#addCalls(result, verdict)
  }

  #beginAttempts(): void {
    for (const [outcome, verdict] of ATTEMPTS_BORN_TOGETHER) this.#addAttempts(outcome, verdict)
  }

  #addAttempts(outcome: string, verdict: string): Series {
    const series = this.#metrics.attempts.series({ ...this.#labels, outcome, verdict })
    within(this.#attempts, outcome).set(verdict, series)
    return series
  }

  #addCalls(result: string, verdict: string): CallSeries {
    const { toolCalls, toolCallVerdicts } = this.#metrics
    const series = {
      calls: toolCalls.series({ ...this.#labels, result }),
      verdicts: toolCallVerdicts.series({ ...this.#labels, outcome: result, verdict }),
    }
    within(this.#calls, result).set(verdict, series)
    return series
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
