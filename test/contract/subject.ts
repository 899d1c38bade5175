import { test, type TestContext } from 'node:test'
import type { Outcome } from '../../src/mesh/call.ts'
import type { UpstreamSession, Upstream } from '../../src/upstreams/upstream.ts'
import { newCall, TestCaller, toolCall, type CallParts } from '../support/caller.ts'
import type { Fixture } from '../support/fixture.ts'

/** What upstreams under test have to set as their `maxReply`, in bytes. */
export const MAX_REPLY = 2 * 1024 ** 2

/** An upstream of a fixture server that runs for it alone. */
export interface Subject {
  readonly upstream: Upstream
  /** Ends what the upstream itself does not. */
  stop(): Promise<void>
}

export type MakeSubject = (fixture: Fixture) => Promise<Subject>

/** What is different about a kind of upstream. */
export interface Traits {
  /** Callers share a conversation, so that none of them may hold it up. */
  readonly shared?: boolean
}

/** A promise that is not kept within this time is broken, in milliseconds. */
const LIMIT_MS = 120_000

/** Names the tests of one kind of upstream. */
export function promising(kind: string) {
  return (promise: string, check: (t: TestContext) => Promise<void>) =>
    void test(`${kind}: ${promise}`, { timeout: LIMIT_MS }, check)
}

/** A caller's conversation with a fixture server, for as long as a test runs. */
export interface Talk {
  readonly upstream: Upstream
  readonly upstreamSession: UpstreamSession
  readonly caller: TestCaller
  /** Calls a tool of the contract server. */
  tool(name: string, args?: Readonly<Record<string, unknown>>, parts?: Partial<CallParts>): Promise<Outcome>
  /** Sends any request. */
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

/** The result of an outcome that has to be one. */
export function resultOf(outcome: Outcome): Readonly<Record<string, unknown>> {
  if (outcome.kind !== 'answered') throw new Error(`${outcome.error.reason}: ${outcome.error.message}`)
  return outcome.result.value.result as Readonly<Record<string, unknown>>
}

/** What a tool of the contract server returned. */
export function returned(outcome: Outcome): unknown {
  const { content } = resultOf(outcome) as { content: [{ text: string }] }
  return JSON.parse(content[0].text)
}
