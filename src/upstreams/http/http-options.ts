import type { Clock, Millis } from '../../mesh/clock.ts'
import type { ReplyLimits } from './http-reply.ts'
import type { SessionStates } from './session-state.ts'
import type { TlsOptions } from './tls.ts'

/** How a server is reached over Streamable HTTP. */
export interface HttpOptions extends ReplyLimits {
  /** The server's name in the registry. */
  readonly server: string
  /** The endpoint, path included. */
  readonly url: string
  /** Sent with every request. */
  readonly headers: Readonly<Record<string, string>>
  /** Headers of the agent that are passed on, old names to new ones. */
  readonly forwardHeaders: Readonly<Record<string, string>>
  /** Sockets for calls; streams that stay open have sockets of their own and take none of these. */
  readonly connections: number
  /** `discovery` bounds a handshake, and how long a message without a reply may take to be acknowledged. */
  readonly timeouts: { readonly connect: Millis; readonly idle: Millis; readonly discovery: Millis }
  /** What follows when the server forgot a session: a new one, or an error. */
  readonly sessionRecovery: 'transparent' | 'surface'
  readonly tls?: TlsOptions | undefined
  /** What callers asked the server to keep in mind: goes with them from one replica to another. */
  readonly states: SessionStates
  readonly clock: Clock
  /** Told when the server does not speak the version of the protocol that it is spoken to in. */
  readonly onVersionError?: (() => void) | undefined
}
