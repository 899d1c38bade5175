import { ablation } from './ablation.ts'
import { agents } from './agents.ts'
import { correlated } from './correlated.ts'
import { deadline } from './deadline.ts'
import { defaultsStudy } from './defaults.ts'
import { hol } from './hol.ts'
import { pool } from './pool.ts'
import { retryStorm } from './retry-storm.ts'
import type { Study } from './study.ts'

export const studies: Readonly<Record<string, Study>> = {
  correlated,
  'retry-storm': retryStorm,
  hol,
  deadline,
  ablation,
  pool,
  agents,
  defaults: defaultsStudy,
}
