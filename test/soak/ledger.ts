import type { Json } from '../e2e/support/gateway.ts'

/** Outcome of one send, as its agent saw it. */
export type Told =
  /** A result with the call's own token. */
  | 'answered'
  /** An error of the gateway: the server may have run the call. */
  | 'failed'
  /** An error of the gateway: the server never saw the call. */
  | 'rejected'
  /** The agent left before the end. */
  | 'vanished'
  /** The agent cancelled. */
  | 'cancelled'

/** One send of a call; a retry has the same token and its own id. */
export interface Sending {
  readonly id: string
  readonly token: string
  readonly tool: 'read' | 'write' | 'report'
  readonly hasKey: boolean
  /** Undefined while under way, and for ever when nothing came back. */
  told?: Told
  /** The policy that rejected the call, if any. The access log may omit rejections. */
  by?: string
  /** An unexpected reply. */
  surprise?: string
}

/** The gateway's record of tool calls: its access log, and its counts by result. */
export interface GatewayAccount {
  /** Results, by the id of the send; several when the log has several lines. */
  readonly lines: ReadonlyMap<string, readonly string[]>
  /** `breakwater_tool_calls_total`, by result. */
  readonly counts: Readonly<Record<string, number>>
}

/** Collects tool calls from the lines of a log. */
export class AccessLines {
  readonly lines = new Map<string, string[]>()
  /** Log lines about bugs of the gateway. */
  readonly defects: string[] = []
  /** Reloads that took effect. */
  reloads = 0

  add(text: string): void {
    if (!text.startsWith('{')) return
    const line = JSON.parse(text) as Json
    if (typeof line.level === 'number' ? line.level >= 50 : line.level === 'error') this.defects.push(text)
    if (line.msg === 'config reloaded') this.reloads++
    if (line.msg !== 'call' || line.method !== 'tools/call') return
    const id = String(line.intent)
    this.lines.set(id, [...(this.lines.get(id) ?? []), String(line.result)])
  }
}

export interface Account {
  readonly sent: number
  readonly told: Readonly<Record<string, number>>
  /** Violations, in words, with the id or the token. */
  readonly unaccounted: readonly string[]
  readonly writesTwice: readonly string[]
}

/**
 * Compares the agents' outcomes with the servers' records and the gateway's counts.
 *
 * An answered call has run; a call the gateway reports as not sent has not. A call with an effect runs at most once, or
 * as often as its agent sent it without a key. Nothing runs unless an agent sent it. The access log has one line per
 * call, except for rejections, which are limited per second. The log's lines and the counter agree.
 */
export function settle(
  sendings: readonly Sending[],
  runs: ReadonlyMap<string, number>,
  { lines, counts }: GatewayAccount,
): Account {
  const unaccounted: string[] = []
  const writesTwice: string[] = []
  const told: Record<string, number> = {}
  const byToken = new Map<string, Sending[]>()
  const ids = new Set<string>()
  for (const sending of sendings) {
    ids.add(sending.id)
    byToken.set(sending.token, [...(byToken.get(sending.token) ?? []), sending])
    told[sending.told ?? 'nothing'] = (told[sending.told ?? 'nothing'] ?? 0) + 1
    const problem = problemOf(sending, lines.get(sending.id) ?? [])
    if (problem !== undefined) unaccounted.push(`${sending.id}: ${problem}`)
  }
  for (const [token, sent] of byToken) {
    const ran = runs.get(token) ?? 0
    if (ran === 0 && sent.some((sending) => sending.told === 'answered'))
      unaccounted.push(`${token}: answered, and has not run`)
    if (ran > 0 && sent.every((sending) => sending.told === 'rejected'))
      unaccounted.push(`${token}: not sent, they say, and has run`)
    const [first] = sent
    const most = first?.hasKey === true ? 1 : sent.length
    if (first?.tool !== 'read' && ran > most) writesTwice.push(`${token}: ran ${ran} times, for ${most}`)
  }
  for (const token of runs.keys())
    if (!byToken.has(token)) unaccounted.push(`${token}: ran, and nobody sent it`)
  for (const id of lines.keys()) if (!ids.has(id)) unaccounted.push(`${id}: in the log, and nobody sent it`)
  unaccounted.push(...sumProblems(lines, counts))
  return { sent: sendings.length, told, unaccounted, writesTwice }
}

/** Returns the problem of one send by itself. */
function problemOf({ told, by, surprise }: Sending, lines: readonly string[]): string | undefined {
  if (told === undefined) return `no response: ${surprise ?? 'still under way'}`
  if (lines.length > 1) return `${lines.length} lines in the log: ${lines.join(', ')}`
  const [result] = lines
  if (told === 'answered' && result !== 'returned') return `answered, and in the log: ${result}`
  if (told === 'failed' && by === undefined && result === undefined) return 'failed, and not in the log'
  if ((told === 'failed' || told === 'rejected') && result === 'returned')
    return `${told}, and in the log: returned`
  return undefined
}

/** Compares the log with the counter: equal for each result, except rejections, where the log may have fewer. */
function sumProblems(
  lines: ReadonlyMap<string, readonly string[]>,
  counts: Readonly<Record<string, number>>,
): string[] {
  const logged: Record<string, number> = {}
  for (const results of lines.values())
    for (const result of results) logged[result] = (logged[result] ?? 0) + 1
  return [...new Set([...Object.keys(logged), ...Object.keys(counts)])].flatMap((result) => {
    const [inLog, counted] = [logged[result] ?? 0, counts[result] ?? 0]
    const agrees = result === 'rejected' ? inLog <= counted : inLog === counted
    return agrees ? [] : [`${result}: ${inLog} in the log, ${counted} in breakwater_tool_calls_total`]
  })
}
