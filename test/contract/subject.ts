import { test, type TestContext } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import type { UpstreamSession, Upstream } from '../../src/upstreams/upstream.ts'
import { newCall, TestCaller, toolCall, type CallParts } from '../support/caller.ts'
import type { Fixture } from '../support/fixture.ts'

/** The `maxReply` of upstreams under test, in bytes. */
export const MAX_REPLY = 2 * 1024 ** 2

/** An upstream with its own fixture server. */
export interface Subject {
  readonly upstream: Upstream
  /** Stops everything that closing the upstream leaves running. */
  stop(): Promise<void>
}

export type MakeSubject = (fixture: Fixture) => Promise<Subject>

/** Differences of a kind of upstream. */
export interface Traits {
  /** Callers share a conversation, so no caller may block the others. */
  readonly shared?: boolean
}

/** A promise not kept within this time counts as broken, in milliseconds. */
const LIMIT_MS = 120_000

/** Prefixes test names with the kind of upstream. */
export function promising(kind: string) {
  return (promise: string, check: (t: TestContext) => Promise<void>) =>
    void test(`${kind}: ${promise}`, { timeout: LIMIT_MS }, check)
}

/** A caller's conversation with a fixture server, for the length of a test. */
export interface Talk {
  readonly upstream: Upstream
  readonly upstreamSession: UpstreamSession
  readonly caller: TestCaller
  /** Calls a tool of the contract server. */
  tool(name: string, args?: Readonly<Record<string, unknown>>, parts?: Partial<CallParts>): Promise<Outcome>
  ask(
    method: string,
    params?: Readonly<Record<string, unknown>>,
    parts?: Partial<CallParts>,
  ): Promise<Outcome>
}

export async function talk(
  t: TestContext,
  make: MakeSubject,
  fixture: Fixture,
  caller = new TestCaller(),
): Promise<Talk> {
  const { upstream, stop } = await make(fixture)
  t.after(() => upstream.close().then(stop))
  const upstreamSession = await upstream.open(caller, new AbortController().signal)
  return {
    upstream,
    upstreamSession,
    caller,
    tool: (name, args, parts) => upstreamSession.exchange(toolCall(name, args, { caller, ...parts })),
    ask: (method, params, parts) =>
      upstreamSession.exchange(newCall({ method, params: params ?? {}, caller, ...parts })),
  }
}

/** Returns the result of an outcome; fails if the outcome has none. */
export function resultOf(outcome: Outcome): Readonly<Record<string, unknown>> {
  if (outcome.kind !== 'answered') throw new Error(`${outcome.error.reason}: ${outcome.error.message}`)
  return outcome.result.value.result as Readonly<Record<string, unknown>>
}

/** Returns the value that a tool of the contract server returned. */
export function returned(outcome: Outcome): unknown {
  const { content } = resultOf(outcome) as { content: [{ text: string }] }
  return JSON.parse(content[0].text)
}
