import { z } from 'zod'
import type { FaultType } from '../fault.ts'
import { sending } from './route/sending.ts'

const schema = z.strictObject({
  server: z.string().min(1).describe('The server that gets the call, under the same name of the tool.'),
})

const wrongBackend: FaultType<z.output<typeof schema>> = {
  schema,
  about: 'A call goes to the wrong server, whose answer may look right.',
  sides: ['upstream'],
  layer: ({ server }, shot) => sending(shot, server, (call) => call),
}

/** Calls that arrive somewhere else. */
export const routeFaults = { 'route.wrong_backend': wrongBackend } as const
