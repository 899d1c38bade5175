import type { Caller } from '../../src/mesh/call.ts'
import type { Signal } from '../../src/mesh/cancel.ts'
import { soloAudience } from '../../src/upstreams/shared/audience.ts'
import { MessageSession } from '../../src/upstreams/pipe/message-session.ts'
import type { Terms } from '../../src/upstreams/pipe/pipe.ts'
import { TestCaller } from './caller.ts'
import { silent } from './log.ts'
import { ManualClock } from './manual-clock.ts'
import { MemoryPipe } from './memory-pipe.ts'

const never: Signal = new AbortController().signal

/** Opens a conversation over a pipe. */
export function openOn(
  pipe: MemoryPipe,
  caller: Caller = new TestCaller(),
  signal = never,
  log = silent,
  more: Partial<Pick<Terms, 'clock' | 'era' | 'faults'>> = {},
) {
  const clock = new ManualClock()
  const terms = {
    server: 'test',
    initializeParams: caller.initializeParams,
    audience: soloAudience('test', caller),
    clock,
    log,
    conceal: (text: string) => text,
    ...more,
  }
  return MessageSession.open(pipe.connect, terms, signal)
}

/** A conversation after its handshake. */
export async function linked({ caller = new TestCaller(), log = silent } = {}) {
  const pipe = new MemoryPipe()
  const upstreamSession = await openOn(pipe, caller, never, log)
  return { pipe, upstreamSession, caller }
}

/** Returns the id of the latest sent request with this method. */
export function lastId(pipe: MemoryPipe, method = 'tools/call'): unknown {
  return pipe.sent(method).at(-1)?.id
}
