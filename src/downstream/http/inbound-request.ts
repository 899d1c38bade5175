import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { Endpoint } from '../endpoint.ts'

/** One HTTP request of an agent, read as far as HTTP goes. */
export interface InboundRequest {
  readonly endpoint: Endpoint
  readonly headers: IncomingHttpHeaders
  /** The client that it came from, as far as its address tells: see `clientOf`. */
  readonly client: string
  readonly response: ServerResponse
}
