import assert from 'node:assert/strict'
import type { Json } from '../../e2e/support/gateway.ts'
import { isObject } from '../../../src/protocol/jsonrpc.ts'
import type { Place, Seen, Stage } from '../support/stage.ts'
import type { Exchange } from '../support/wire-agent.ts'

/** How to trigger a fault of a type, and how to recognise its effect. */
export interface Entry {
  /** Fields of the fault; default: none. */
  readonly fault?: Json | ((place: Place) => Json)
  /** The play; default: one call of `echo`. The play without the fault has to end too. */
  readonly play?: (stage: Stage) => Promise<void>
  /** Places where the gateway accepts the plan but the fault has no effect, with the journal's reason. */
  readonly idle?: Readonly<Record<string, string>>
  /** Places where the gateway accepts the plan but there is nothing to hit, with the reason. */
  readonly unknown?: Readonly<Record<string, string>>
  /**
   * Asserts the effect and describes it in a few words, the same each time. Throws for the same play without the fault.
   */
  readonly saw: (seen: Seen) => string
}

export type Entries = Readonly<Record<string, Entry>>

export async function oneCall(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.call('echo').over
}

export const calling =
  (tool: string, more: Json = {}) =>
  async (stage: Stage): Promise<void> => {
    const agent = await stage.agent()
    await agent.call(tool, undefined, more).over
  }

export async function oneList(stage: Stage): Promise<void> {
  const agent = await stage.agent()
  await agent.send('tools/list').over
}

export function noCall({ calls }: Seen): void {
  assert.equal(calls.length, 0, 'the server got the call')
}

/** The server got one call and answered. */
export function ranOnce(seen: Seen): void {
  assert.equal(seen.calls.length, 1, `the server got ${seen.calls.length} calls`)
  assert.equal(seen.gave('tools/call').length, 1, 'the server gave no answer')
}

export function failed(exchange: Exchange, reason: string, sent?: boolean): void {
  assert.equal(exchange.reason, reason, shown(exchange))
  if (sent !== undefined) assert.equal(exchange.error?.data?.sent, sent, shown(exchange))
}

/** The agent got a good answer. */
export function answered(exchange: Exchange): Json {
  assert.equal(exchange.end, 'whole')
  assert.equal(exchange.answers.length, 1, shown(exchange))
  assert.ok(exchange.result, shown(exchange))
  return exchange.result
}

/** The agent's connection broke before the first byte of the reply. */
export function brokeOff(exchange: Exchange): void {
  assert.deepEqual([exchange.chunks.length, exchange.end], [0, 'RST'], shown(exchange))
}

export function shown({ end, head, body }: Exchange): string {
  return `${end}: ${head}${body.subarray(0, 2_000).toString()}`
}

/** Checks that at least `ms` milliseconds lie between two times. */
export function atLeast(ms: number, from: number | undefined, to: number | undefined): void {
  assert.ok(Number(to) - Number(from) >= ms, `${Number(to) - Number(from)} ms`)
}

/** Checks that two values differ only at these JSON Pointers, each with its value in the second. */
export function differs(before: unknown, after: unknown, places: Readonly<Record<string, unknown>>): void {
  assert.deepEqual(Object.fromEntries(changesIn(before, after, '')), places)
}

/** Compares the server's result with the agent's. */
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
