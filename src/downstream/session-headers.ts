import { ASSUMED_VERSION, isLegacyVersion } from '../protocol/versions.ts'
import { refusal, type Refusal } from './refusal.ts'
import type { Session } from './session.ts'
import type { Sessions } from './sessions.ts'
import type { Visit } from './visit.ts'

/** Codes of HTTP-level refusals, as the SDKs use them. */
const BAD_SESSION = -32000
const UNKNOWN_SESSION = -32001

/** Says how a client goes on: by the specification it begins a new session when it gets a 404. */
const OTHER_CREDENTIALS =
  'Session not found: it was opened with other credentials (Authorization, or headers that servers get); begin with initialize'

/**
 * The session that the headers of a request name. With other credentials than its own there is none: who has only its id
 * must not act with the credentials that servers get, and whose token was renewed begins another one.
 */
export function sessionOf({ front, headers }: Visit, sessions: Sessions): Session | Refusal {
  const { 'mcp-session-id': id, 'mcp-protocol-version': version = ASSUMED_VERSION } = headers
  if (!isLegacyVersion(version)) {
    const named = typeof version === 'string' ? version.slice(0, 40) : 'given twice'
    return refusal(400, null, BAD_SESSION, `Bad Request: unsupported protocol version ${named}`)
  }
  if (typeof id !== 'string') {
    const why = 'Bad Request: the Mcp-Session-Id header is missing; begin with initialize'
    return refusal(400, null, BAD_SESSION, why)
  }
  const session = sessions.find(id)
  if (session === undefined || session.front.server !== front.server)
    return refusal(404, null, UNKNOWN_SESSION, 'Session not found')
  return sessions.isOf(session, headers) ? session : refusal(404, null, UNKNOWN_SESSION, OTHER_CREDENTIALS)
}
