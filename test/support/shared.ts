import type { Call, Outcome } from '../../src/mesh/call.ts'
import { ToolCallRules } from '../../src/upstreams/modern/tool-call-rules.ts'
import { SharedConnection } from '../../src/upstreams/shared/shared-connection.ts'
import { SessionStates } from '../../src/upstreams/shared/session-state.ts'
import type { UpstreamSession } from '../../src/upstreams/upstream.ts'
import { TestCaller } from './caller.ts'
import { recordedLog } from './log.ts'
import { ManualClock } from './manual-clock.ts'
import { type Json, MemoryPipe } from './memory-pipe.ts'

/** The gateway's own `initialize` params. */
export const gatewayInitialize = {
  protocolVersion: '2025-11-25',
  capabilities: { roots: { listChanged: true } },
  clientInfo: { name: 'gateway', version: '1.0.0' },
}

/** A conversation that callers can join. */
export async function shared() {
  const pipe = new MemoryPipe()
  const [clock, tools] = [new ManualClock(), new ToolCallRules()]
  const conceal = (text: string) => text
  const { log, lines } = recordedLog()
  const withheld = { count: 0 }
  const terms = {
    server: 'test',
    initializeParams: gatewayInitialize,
    clock,
    log,
    conceal,
    tools,
    states: new SessionStates(),
    withheld: () => withheld.count++,
  }
  const upstreamSession = await SharedConnection.open(pipe.connect, terms, new AbortController().signal)
  const join = (caller = new TestCaller()) => ({ caller, upstreamSession: upstreamSession.attach(caller) })
  return { pipe, upstreamSession, join, clock, lines, withheld }
}

/** Sends a call and lets the server answer. */
export async function answered(
  pipe: MemoryPipe,
  upstreamSession: UpstreamSession,
  call: Call,
  rest: Json = { result: {} },
): Promise<Outcome> {
  const before = pipe.sent(call.method).length
  const outcome = upstreamSession.exchange(call)
  const request = pipe.sent(call.method)[before]
  if (request !== undefined) void pipe.say({ id: request.id, ...rest })
  return outcome
}
