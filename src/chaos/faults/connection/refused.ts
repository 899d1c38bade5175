import { z } from 'zod'
import type { FaultType } from '../../fault.ts'
import { refuse } from '../shared/refuse.ts'
import { requests } from '../shared/requests.ts'

const schema = z.strictObject({})

/** Nobody is there: the server never gets the call. */
export const refused = {
  schema,
  about: 'No connection can be made: the server never gets the call.',
  methods: requests,
  layer: (_, shot) => () => (call) => {
    shot.note({ effect: 'refused' })
    return Promise.resolve(refuse(call, shot))
  },
} satisfies FaultType<z.output<typeof schema>>
