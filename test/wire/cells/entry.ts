import assert from 'node:assert/strict'
import type { Json } from '../../e2e/support/gateway.ts'
import { isObject } from '../../../src/protocol/jsonrpc.ts'
import type { Place, Seen, Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'

/** What is done to see a fault of one type, and what its peers then saw. */
export interface Entry {
  /** Fields of the fault; none unless given. */
  readonly fault?: Json | ((place: Place) => Json)
  /** What is done; one call of `echo` unless given. The same without a fault has to come to its end as well. */
  readonly play?: (stage: Stage) => Promise<void>
  /** Places where the plan is taken and nothing can happen all the same: why, as the journal has it. */
  readonly idle?: Readonly<Record<string, string>>
  /** Places where the plan is taken and there is nothing for it to hit: why. */
  readonly unknown?: Readonly<Record<string, string>>
  /**
   * Asserts what was seen, and tells it in a few words, the same each time. It has to throw at what is seen of the same
   * play without the fault.
   */
  readonly saw: (seen: Seen) => string
}

export type Entries = Readonly<Record<string, Entry>>

/** One call, and its end. */
export async function oneCall(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.call('echo').over
}

/** A play of one call of a tool. */
export const calling =
  (tool: string, more: Json = {}) =>
  async (stage: Stage): Promise<void> => {
    const agent = await stage.agent()
    await agent.call(tool, undefined, more).over
  }

/** A play of one list. */
export async function oneList(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.send('tools/list').over
}

/** The server never got the call. */
export function noCall({ calls }: Seen): void {
  assert.equal(calls.length, 0, 'the server got the call')
}

/** The server got one call, and gave its answer. */
export function ranOnce(seen: Seen): void {
  assert.equal(seen.calls.length, 1, `the server got ${seen.calls.length} calls`)
  assert.equal(seen.gave('tools/call').length, 1, 'the server gave no answer')
}

/** The gateway's own error: its reason. */
export function failed(exchange: Exchange, reason: string, sent?: boolean): void {
  assert.equal(exchange.reason, reason, shown(exchange))
  if (sent !== undefined) assert.equal(exchange.error?.data?.sent, sent, shown(exchange))
}

/** The agent has one good answer. */
export function answered(exchange: Exchange): Json {
  assert.equal(exchange.end, 'whole')
  assert.equal(exchange.answers.length, 1, shown(exchange))
  assert.ok(exchange.result, shown(exchange))
  return exchange.result
}

/** The agent's connection broke before a byte of the reply. */
export function brokeOff(exchange: Exchange): void {
  assert.deepEqual([exchange.chunks.length, exchange.end], [0, 'RST'], shown(exchange))
}

export function shown({ end, head, body }: Exchange): string {
  return `${end}: ${head}${body.subarray(0, 2_000).toString()}`
}

/** Something came so long after something else, or later. */
export function atLeast(ms: number, from: number | undefined, to: number | undefined): void {
  assert.ok(Number(to) - Number(from) >= ms, `${Number(to) - Number(from)} ms`)
}

/** The two values are the same but for these places: JSON Pointers, each with what stands there in the second. */
export function differs(before: unknown, after: unknown, places: Readonly<Record<string, unknown>>): void {
  assert.deepEqual(Object.fromEntries(changesIn(before, after, '')), places)
}

/** Of the result that the server gave, and the one that the agent got. */
export function resultDiffers(seen: Seen, places: Readonly<Record<string, unknown>>): void {
  const given = seen.gave('tools/call').at(-1)?.message.result
  assert.ok(given, 'the server gave no result')
  differs(given, answered(seen.exchanges.at(-1)!), places)
}

function changesIn(before: unknown, after: unknown, path: string): [string, unknown][] {
  if (JSON.stringify(before) === JSON.stringify(after)) return []
  if (Array.isArray(before) && Array.isArray(after) && before.length === after.length)
    return before.flatMap((held, at) => changesIn(held, after[at], `${path}/${at}`))
  if (!isObject(before) || !isObject(after)) return [[path, after]]
  const keys = new Set([...Object.keys(before), ...Object.keys(after)])
  return [...keys].flatMap((key) => changesIn(before[key], after[key], `${path}/${key}`))
}
