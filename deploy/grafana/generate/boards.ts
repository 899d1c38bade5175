import type { Dashboard } from '@grafana/grafana-foundation-sdk/dashboard'
import { arms } from './boards/arms.ts'
import { chaos } from './boards/chaos.ts'
import { gateway } from './boards/gateway.ts'
import { overview } from './boards/overview.ts'
import { resilience } from './boards/resilience.ts'
import { runs } from './boards/runs.ts'
import { tool } from './boards/tool.ts'

/** Every dashboard: a new dashboard is one file and one line. */
export const boards: readonly Dashboard[] = [overview, tool, resilience, chaos, arms, runs, gateway]
