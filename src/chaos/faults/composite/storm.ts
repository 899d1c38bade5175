import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { speaksHttp } from '../shared/http.ts'
import { refuse } from '../shared/refuse.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({
  failures: z
    .int()
    .min(1)
    .max(100)
    .default(2)
    .describe('How many attempts of one call fail before one passes. With `sticky`, each attempt is hit.'),
})

/** `retry.storm`: makes everybody above try again, so that one call becomes many. */
export const storm: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'The first attempts of each call fail, with HTTP 503 where there is HTTP, so that retries multiply.',
  sides: ['upstream'],
  methods: requests,
  layer:
    ({ failures }, shot) =>
    (next) =>
    (call) => {
      if (call.attempt > failures) {
        shot.notApplicable(`attempt ${call.attempt} passes: the first ${failures} fail`)
        return next(call)
      }
      shot.note({ attempt: call.attempt, of: failures })
      if (!speaksHttp(call, shot)) return Promise.resolve(refuse(call, shot))
      return Promise.resolve(
        shot.reply(call, {
          status: 503,
          headers: { 'content-type': 'text/plain' },
          body: 'Service Unavailable',
        }),
      )
    },
}
