import { z } from 'zod'

// With schemas of its own, the SDK would answer wrong parameters as an internal error.

export const listParams = z.object({ cursor: z.string().optional() })

export const promptParams = z.object({
  name: z.string(),
  arguments: z.record(z.string(), z.string()).default({}),
})
