import type { Message } from '../mesh/call.ts'
import { gatewayError, type GatewayError } from '../mesh/errors.ts'
import type { Live } from '../mesh/live.ts'
import { askedLimitMs } from '../policies/deadline/asked.ts'
import { INVALID_REQUEST, isRequestId, paramsOf, resultText, type RequestId } from '../protocol/jsonrpc.ts'
import { negotiate } from '../protocol/versions.ts'
import type { GatewayGeneration } from '../registry/generation.ts'
import { principalOf } from './credentials.ts'
import type { Welcome } from './front.ts'
import { sendJson } from './post-reply.ts'
import { refusal, refuse } from './refusal.ts'
import { gatewayErrorText } from './respond.ts'
import type { Sessions } from './sessions.ts'
import type { Visit } from './visit.ts'

/** Takes the `initialize` of a client: a session begins, unless there is no room or its server does not answer. */
export async function initialize(
  visit: Visit,
  message: Message,
  sessions: Sessions,
  live: Live<GatewayGeneration>,
): Promise<void> {
  const { front, headers, client, response } = visit
  const { id } = message.value
  if (!isRequestId(id)) {
    return refuse(visit, refusal(400, null, INVALID_REQUEST, 'Invalid Request: initialize needs an id'))
  }
  const said = paramsOf(message.value)
  const version = negotiate(said.protocolVersion)
  const hello = { ...said, protocolVersion: version }
  const principal = principalOf(headers)
  const full =
    sessions.greetingRefusal(client, principal, hello, headers) ?? sessions.refusal(client, principal)
  if (full !== undefined) return busy(visit, id, full)
  const limitMs = askedLimitMs({ inbound: headers, message })
  const session = sessions.draft({ front, headers, client, hello, version })
  let welcome: Welcome
  let begun = false
  try {
    welcome = await front.welcome(live.current, session, version, limitMs)
    begun = 'text' in welcome && sessions.add(session)
  } finally {
    if (!begun) await sessions.close(session)
  }
  if (begun && 'text' in welcome) {
    sendJson(response, 200, resultText(id, welcome.text), { 'mcp-session-id': session.id })
    return session.wrote(response)
  }
  const error =
    'error' in welcome ? welcome.error : gatewayError('shutting_down', 'the gateway is being stopped')
  if (error.reason === 'overloaded') return busy(visit, id, error)
  sendJson(response, 200, gatewayErrorText(id, error, { server: front.server }))
}

/** There is no room for one more session, here or at its server. */
function busy({ response, front }: Visit, id: RequestId, error: GatewayError): void {
  const { retryAfterMs = 5_000 } = error
  const headers = { 'retry-after': String(Math.ceil(retryAfterMs / 1_000)) }
  sendJson(response, 503, gatewayErrorText(id, error, { server: front.server }), headers)
}
