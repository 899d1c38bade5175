import assert from 'node:assert/strict'
import type { TestContext } from 'node:test'
import { stdioServer, type StdioServerConfig } from '../../src/config/schema/server-schema.ts'
import type { Outcome } from '../../src/mesh/call.ts'
import { systemClock, type Clock } from '../../src/mesh/clock.ts'
import type { Log } from '../../src/telemetry/log.ts'
import { StdioUpstream, type StdioOptions } from '../../src/upstreams/stdio/stdio.ts'
import type { UpstreamSession } from '../../src/upstreams/upstream.ts'
import { newCall, TestCaller, type CallParts } from './caller.ts'
import { fixtureCommand } from './fixture.ts'
import { silent } from './log.ts'
import { ManualClock } from './manual-clock.ts'
import { gatewayInitialize } from './shared.ts'

export type StdioParts = Partial<
  Pick<StdioServerConfig, 'command' | 'args' | 'env' | 'cwd' | 'sharing' | 'maxReply' | 'era' | 'processes'>
> & {
  readonly clock?: Clock
  readonly log?: Log
  readonly refused?: NonNullable<StdioOptions['refused']>
}

/** An upstream of the raw fixture server, or of another program; closed after the test. */
export function stdioUpstream(
  t: TestContext,
  { clock = systemClock, log = silent, refused, ...config }: StdioParts = {},
) {
  const upstream = new StdioUpstream({
    server: 'test',
    config: stdioServer.parse({ ...fixtureCommand('raw', 'stdio'), ...config }),
    initializeParams: gatewayInitialize,
    clock,
    log,
    ...(refused === undefined ? {} : { refused }),
  })
  t.after(async () => {
    const closing = upstream.close()
    if (clock instanceof ManualClock) await clock.advance(60_000)
    await closing
  })
  return upstream
}

/** Opens a conversation that nobody cancels. */
export function open(upstream: StdioUpstream, caller = new TestCaller()): Promise<UpstreamSession> {
  return upstream.open(caller, new AbortController().signal)
}

export function ask(
  upstreamSession: UpstreamSession,
  method: string,
  params: Record<string, unknown> = {},
  parts: Partial<CallParts> = {},
) {
  return upstreamSession.exchange(newCall({ method, params, ...parts }))
}

/** Returns the result of a request that has to succeed. */
export async function result(outcome: Promise<Outcome>): Promise<Readonly<Record<string, unknown>>> {
  const settled = await outcome
  assert.ok(settled.kind === 'answered', settled.kind === 'answered' ? '' : settled.error.message)
  return settled.result.value.result as Readonly<Record<string, unknown>>
}

/** Returns the process id of a conversation's server. */
export async function pidOf(upstreamSession: UpstreamSession): Promise<number> {
  return (await result(ask(upstreamSession, 'raw/pid'))).pid as number
}
