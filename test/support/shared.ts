import type { Call, Outcome } from '../../src/mesh/call.ts'
import { ToolFacts } from '../../src/upstreams/modern/tool-facts.ts'
import { SharedLink } from '../../src/upstreams/shared/shared-link.ts'
import type { Link } from '../../src/upstreams/upstream.ts'
import { TestCaller } from './caller.ts'
import { silent } from './log.ts'
import { ManualClock } from './manual-clock.ts'
import { type Json, MemoryPipe } from './memory-pipe.ts'

/** What the gateway says of itself. */
export const gatewayHello = {
  protocolVersion: '2025-11-25',
  capabilities: { roots: { listChanged: true } },
  clientInfo: { name: 'gateway', version: '1.0.0' },
}

/** A conversation that callers can join. */
export async function shared() {
  const pipe = new MemoryPipe()
  const [clock, tools] = [new ManualClock(), new ToolFacts()]
  const terms = { server: 'test', hello: gatewayHello, clock, log: silent, tools }
  const link = await SharedLink.open(pipe.connect, terms, new AbortController().signal)
  const join = (caller = new TestCaller()) => ({ caller, link: link.attach(caller) })
  return { pipe, link, join }
}

/** Sends a call, and lets the server answer it. */
export async function answered(
  pipe: MemoryPipe,
  link: Link,
  call: Call,
  rest: Json = { result: {} },
): Promise<Outcome> {
  const before = pipe.sent(call.method).length
  const outcome = link.exchange(call)
  const request = pipe.sent(call.method)[before]
  if (request !== undefined) void pipe.say({ id: request.id, ...rest })
  return outcome
}
