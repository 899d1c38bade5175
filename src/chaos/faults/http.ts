import { z } from 'zod'
import type { FaultType } from '../fault.ts'
import { NO_STATUS, speaksHttp, requests } from './shared.ts'

const headerName = z
  .string()
  .regex(/^[a-z0-9!#$%&'*+.^_`|~-]+$/, 'expected the name of a header, in lower case')

const headerValue = z.string().regex(/^[\t\x20-\x7e]*$/, 'expected printable ASCII')

/** Headers that frame the body: the gateway computes them from the body. */
const framing = ['content-length', 'transfer-encoding', 'connection']

const schema = z.strictObject({
  status: z.int().min(300).max(599).default(503).describe('The HTTP status, 300 to 599.'),
  body: z.string().max(65_536).default('').describe('The body, sent unchanged.'),
  headers: z
    .record(headerName, headerValue)
    .refine((headers) => !framing.some((name) => name in headers), {
      error: `${framing.join(', ')} follow from the body`,
    })
    .default({})
    .describe('Headers of the reply; `content-type` is text/plain unless it is named here.'),
})

/** An HTTP status in place of a reply, as from a proxy before the server: the server never gets the call. */
const status = {
  schema,
  family: 'http',
  about: 'An HTTP status in place of a reply.',
  use: 'To imitate a proxy or a server that is overloaded, under maintenance or misconfigured.',
  seen: 'Nothing when a retry succeeds, or an error.',
  containedBy: {
    policies: ['retry'],
    how: 'Temporary statuses are retried as soon as another call shows that the tool works again.',
  },
  methods: requests,
  sides: ['upstream', 'client'],
  transports: { only: ['http', 'sse'], otherwise: `${NO_STATUS}; see rpc.error` },
  runsAsAsked: true,
  aliases: { 'chaos-monkey': ['error'] },
  example: { name: 'status', rate: 0.2, ttl: '10m', match: { server: 'search' }, status: 503 },
  layer: (config, injection) => (next) => (call) => {
    if (!speaksHttp(call, injection)) {
      injection.notApplicable(NO_STATUS)
      return next(call)
    }
    injection.note({ status: config.status })
    const headers = { 'content-type': 'text/plain', ...config.headers }
    return Promise.resolve(injection.reply(call, { status: config.status, headers, body: config.body }))
  },
} satisfies FaultType<z.output<typeof schema>>

/** Faults of HTTP itself. */
export const httpFaults = { 'http.status': status }
