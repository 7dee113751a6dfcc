import { compileFilters, filterItems } from '../../src/ingest/filter/inbound.ts';
import { FILTER_NAMES } from '../../src/lib/filter-names.ts';
import { eventPayload } from '../payloads.ts';
import { seededRandom } from '../random.ts';
import { type MicroTask, micro } from './task.ts';

const FACTS = {
  origin: 'https://shop.example.com',
  referer: '',
  'user-agent': 'Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0',
};

export function filterTasks(): MicroTask[] {
  const all = compileFilters({ filters: [...FILTER_NAMES], allowedOrigins: [] });
  const origins = compileFilters({ filters: [], allowedOrigins: ['*.example.com', 'https://other.test'] });
  const text = eventPayload(seededRandom(3));
  const plain = { type: 'event', payload: Buffer.from(text) } as const;
  const suspect = { type: 'event', payload: Buffer.from(text.replace('Chrome/', 'Googlebot/')) } as const;
  return [
    micro('ordinary event of 1.9 KB, all filters', () => filterItems(all, FACTS, [plain])),
    micro('the same with a needle, so parsed', () => filterItems(all, FACTS, [suspect])),
    micro('origin only', () => filterItems(origins, FACTS, [plain])),
  ];
}
