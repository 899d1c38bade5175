import type { Json } from '../e2e/support/gateway.ts'

/** What an agent was told of a request that it sent, or did itself. */
export type Told =
  /** A result with the call's own token. */
  | 'answered'
  /** An error of the gateway, by which the server may have run it. */
  | 'failed'
  /** An error of the gateway, by which the server has never seen it. */
  | 'rejected'
  /** The agent was gone before the end. */
  | 'vanished'
  /** The agent took it back. */
  | 'cancelled'

/** One sending of a call; a call that is sent again has the same token and an id of its own. */
export interface Sending {
  readonly id: string
  readonly token: string
  readonly tool: 'read' | 'write' | 'report'
  readonly hasKey: boolean
  /** Undefined while it is under way, and for ever when nothing came back. */
  told?: Told
  /** The policy that refused it, if one did: then its line of the access log may have been left out. */
  by?: string
  /** What came back in place of what could have. */
  surprise?: string
}

/** What the gateway says of calls of tools: its access log, and its counts by result. */
export interface GatewayAccount {
  /** Results, by the id of the sending; more than one when it wrote more than one line. */
  readonly lines: ReadonlyMap<string, readonly string[]>
  /** `breakwater_tool_calls_total`, by result. */
  readonly counts: Readonly<Record<string, number>>
}

/** Collects what the lines of a log say of calls of tools. */
export class AccessLines {
  readonly lines = new Map<string, string[]>()
  /** Lines about defects of the gateway itself. */
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

/** What a run came to. */
export interface Account {
  readonly sent: number
  readonly told: Readonly<Record<string, number>>
  /** What must not be: each in words, with the id or the token. */
  readonly unaccounted: readonly string[]
  readonly writesTwice: readonly string[]
}

/**
 * Holds what agents were told against what servers wrote down and what the gateway counted.
 *
 * An answered call has run. One that the gateway says was not sent has not. A call with an effect runs at most once, or
 * as often as its agent sent it without a key. Nothing runs that nobody sent. The access log has one line for each call,
 * but for rejections, of which it says only so many a second; its lines and the counter agree.
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

/** What is wrong with one sending by itself. */
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

/** Every call that the gateway has counted is in its log; of the rejected ones there may be more. */
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
