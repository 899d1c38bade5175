import type { RequestListener } from 'node:http'
import type { TestContext } from 'node:test'
import type { GatewayError } from '../../src/mesh/errors.ts'
import type { LargeMessage } from '../../src/protocol/large-message.ts'
import type { ReplyHeaders } from '../../src/upstreams/http/http-status.ts'
import { HttpReply, type ReplySink } from '../../src/upstreams/http/http-reply.ts'
import type { ServerReplies } from '../../src/upstreams/unfinished-replies.ts'
import { wireTo } from '../support/wired.ts'

/** Largest reply, in bytes. */
export const LIMIT = 100_000

/** A sink, recording its calls in short words. `takesMessages`: also takes large replies as messages. */
export function recorder({ takesMessages = false } = {}) {
  const told: string[] = []
  const last: {
    error?: GatewayError
    body?: string
    status?: number
    headers?: ReplyHeaders
    message?: LargeMessage
  } = {}
  let over = () => {}
  const end = new Promise<void>((resolve) => (over = resolve))
  let held: Promise<void> | undefined
  const sink: ReplySink = {
    opened: (headers) => void told.push(`opened ${headers.mediaType}`),
    event({ data }) {
      told.push(`event ${data.slice(0, 20)}`)
      return held
    },
    body(status, headers, body) {
      told.push('body')
      Object.assign(last, { status, headers, body })
      over()
    },
    ...(takesMessages && {
      message(_, message) {
        told.push('message')
        last.message = message
        over()
      },
    }),
    ended() {
      told.push('ended')
      over()
    },
    failed(error) {
      told.push(`failed ${error.reason}`)
      last.error = error
      over()
    },
  }
  return { sink, told, last, end, hold: (promise: Promise<void>) => void (held = promise) }
}

export async function post(
  t: TestContext,
  handle: RequestListener,
  maxReply = LIMIT,
  unfinished?: ServerReplies,
) {
  const { wire, stop } = await wireTo(t, handle)
  const recorded = recorder()
  const reply = new HttpReply(recorded.sink, { maxReply, unfinished })
  wire.post('{}', undefined, reply)
  return { ...recorded, reply, wire, stop }
}
