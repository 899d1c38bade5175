import type { IncomingHttpHeaders, ServerResponse } from 'node:http'
import type { Front } from './front.ts'

/** One HTTP request of an agent, read as far as HTTP goes. */
export interface Visit {
  readonly front: Front
  readonly headers: IncomingHttpHeaders
  readonly response: ServerResponse
}
