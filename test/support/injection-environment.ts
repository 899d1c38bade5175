import type { RawReply, FaultEnvironment } from '../../src/chaos/fault.ts'
import type { Call, Message, Outcome } from '../../src/mesh/call.ts'
import { verdictOf } from '../../src/mesh/classify.ts'
import type { CrashLoop } from '../../src/mesh/wire-shape.ts'
import { gatewayError } from '../../src/mesh/errors.ts'
import { parseJson, readMessage, resultText } from '../../src/protocol/jsonrpc.ts'

/** A fault environment that records its uses. */
export interface TestEnvironment extends FaultEnvironment {
  readonly told: { server: string; message: Message }[]
  readonly signalled: { server: string; signal: NodeJS.Signals }[]
  readonly crashed: { server: string; loop: CrashLoop }[]
  readonly written: { server: string; bytes: Buffer }[]
  readonly refreshed: string[]
  readonly lost: string[]
  /** Calls sent to another server, with its name. */
  readonly sent: { call: Call; server: string }[]
}

/** A fault environment of HTTP servers in the legacy era. Everything succeeds and is recorded. */
export function testEnvironment(script: Partial<FaultEnvironment> = {}): TestEnvironment {
  const faultEnvironment: Pick<
    TestEnvironment,
    'told' | 'signalled' | 'crashed' | 'written' | 'refreshed' | 'lost' | 'sent'
  > = {
    told: [],
    signalled: [],
    crashed: [],
    written: [],
    refreshed: [],
    lost: [],
    sent: [],
  }
  return {
    ...faultEnvironment,
    kindOf: (call) => (script.kindOf ? script.kindOf(call) : { transport: 'http', era: 'legacy' }),
    outputSchemaOf: (server, tool) => script.outputSchemaOf?.(server, tool),
    signal(server, signal) {
      faultEnvironment.signalled.push({ server, signal })
      return script.signal?.(server, signal) ?? true
    },
    crash(server, loop) {
      faultEnvironment.crashed.push({ server, loop })
      script.crash?.(server, loop)
    },
    write(server, bytes, over) {
      faultEnvironment.written.push({ server, bytes })
      return script.write === undefined ? Promise.resolve() : script.write(server, bytes, over)
    },
    loseSession(server, caller) {
      faultEnvironment.lost.push(server)
      return script.loseSession?.(server, caller) ?? true
    },
    tell(server, message) {
      faultEnvironment.told.push({ server, message })
      script.tell?.(server, message)
    },
    refresh(server) {
      faultEnvironment.refreshed.push(server)
      script.refresh?.(server)
    },
    beginAttempt: (call, sent) => script.beginAttempt?.(call, sent) ?? true,
    suspect: (call, error) => script.suspect?.(call, error),
    unreachable: (call) =>
      script.unreachable?.(call) ?? gatewayError('upstream_unavailable', 'cannot connect (ECONNREFUSED)'),
    failToConnect: (call, failure) => script.failToConnect?.(call, failure),
    sendTo(call, server) {
      faultEnvironment.sent.push({ call, server })
      return script.sendTo?.(call, server)
    },
    read: script.read ?? readReply,
  }
}

/** A service that always answers with this result. */
export const answering =
  (result: unknown) =>
  (call: Call): Promise<Outcome> =>
    Promise.resolve(answerOf(resultText(call.id, JSON.stringify(result)), 200))

/** Returns the outcome for a reply with this text. */
export function answerOf(text: string, status: number): Outcome {
  const value = parseJson(text) as Message['value']
  return { kind: 'answered', result: { text, value, status }, verdict: verdictOf(value) }
}

function readReply(_: Call, { status, body }: RawReply): Outcome {
  if (readMessage(body) !== undefined && status === 200) return answerOf(body, status)
  const error =
    status === 200
      ? gatewayError('bad_reply', 'the reply is no JSON-RPC message', { sent: true })
      : gatewayError('upstream_status', `HTTP ${status}`, { sent: true })
  return { kind: 'failed', error }
}
