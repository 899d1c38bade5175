import { z } from 'zod'
import type { FaultType } from '../fault.ts'
import { NO_STATUS, speaksHttp } from './shared/http.ts'
import { requests } from './shared/requests.ts'

const headerName = z
  .string()
  .regex(/^[a-z0-9!#$%&'*+.^_`|~-]+$/, 'expected the name of a header, in lower case')

const headerValue = z.string().regex(/^[\t\x20-\x7e]*$/, 'expected printable ASCII')

/** Headers that say how the body is framed: they follow from it. */
const framing = ['content-length', 'transfer-encoding', 'connection']

const schema = z.strictObject({
  status: z.int().min(300).max(599).default(503).describe('The HTTP status, 300 to 599.'),
  body: z.string().max(65_536).default('').describe('The body, as it is.'),
  headers: z
    .record(headerName, headerValue)
    .refine((headers) => !framing.some((name) => name in headers), {
      error: `${framing.join(', ')} follow from the body`,
    })
    .default({})
    .describe('Headers of the reply; `content-type` is text/plain unless it is named here.'),
})

/** A status in place of a reply, as from a proxy before the server: that one never gets the call. */
const status = {
  schema,
  about: 'An HTTP status in place of a reply.',
  methods: requests,
  refuses: ({ transport }) => (transport === 'stdio' ? `${NO_STATUS}; see rpc.error` : undefined),
  layer: (config, shot) => (next) => (call) => {
    if (!speaksHttp(call, shot)) {
      shot.notApplicable(NO_STATUS)
      return next(call)
    }
    shot.note({ status: config.status })
    const headers = { 'content-type': 'text/plain', ...config.headers }
    return Promise.resolve(shot.reply(call, { status: config.status, headers, body: config.body }))
  },
} satisfies FaultType<z.output<typeof schema>>

/** Faults of HTTP itself. */
export const httpFaults = { 'http.status': status }
