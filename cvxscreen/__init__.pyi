"""The public names and where they live: for type checkers, and for the package itself."""

from . import (
    bounds as bounds,
    datasets as datasets,
    errors as errors,
    estimators as estimators,
    multitask as multitask,
    plots as plots,
)
from ._support.limits import (
    memory_limit as memory_limit,
)
from .api import (
    certify as certify,
    screen as screen,
    solve as solve,
)
from .certificates.certificate import (
    Certificate as Certificate,
)
from .core.closed_form import (
    c_min as c_min,
)
from .core.duality import (
    Point as Point,
    reference_point as reference_point,
)
from .core.losses import (
    Losses as Losses,
)
from .core.problem import (
    Problem as Problem,
    Quadratic as Quadratic,
)
from .cvxpy_plugin.inspection import (
    explain as explain,
    verify as verify,
)
from .cvxpy_plugin.parameter_path import (
    ParameterPath as ParameterPath,
)
from .cvxpy_plugin.reduced import (
    reduce as reduce,
)
from .cvxpy_plugin.request import (
    Report as Report,
)
from .cvxpy_plugin.screened_solver import (
    Screened as Screened,
)
from .data_changes.bootstrap import (
    Bootstrap as Bootstrap,
    bootstrap as bootstrap,
)
from .data_changes.influence import (
    Influence as Influence,
    influence as influence,
)
from .data_changes.leave_one_out import (
    LeaveOneOut as LeaveOneOut,
    leave_one_out as leave_one_out,
)
from .data_changes.reweight import (
    DataChange as DataChange,
    WeightRange as WeightRange,
    add as add,
    remove as remove,
    reweight as reweight,
    weight_range as weight_range,
)
from .errors import (
    CvxscreenError as CvxscreenError,
    InvalidInput as InvalidInput,
    MissingDependency as MissingDependency,
    NotCertified as NotCertified,
    NotSaved as NotSaved,
    NotScreenable as NotScreenable,
    TooLarge as TooLarge,
    UnknownName as UnknownName,
    UnsafeEvidence as UnsafeEvidence,
)
from .models.cvar import (
    cvar as cvar,
)
from .models.files import (
    open_data as open_data,
)
from .models.linear import (
    regression as regression,
    sparse_svm as sparse_svm,
    sparse_svr as sparse_svr,
    svm as svm,
)
from .models.metric import (
    Comparisons as Comparisons,
    factor_of as factor_of,
    metric_of as metric_of,
    pairs as pairs,
    quadruplets as quadruplets,
    rtlm as rtlm,
    triplets as triplets,
)
from .models.multitask import (
    raso as raso,
)
from .multitask import (
    MultiTask as MultiTask,
    MultiTaskSolution as MultiTaskSolution,
)
from .out_of_core.dask_engine import (
    on_dask as on_dask,
)
from .out_of_core.device import (
    on_device as on_device,
)
from .paths.compare_bounds import (
    BoundComparison as BoundComparison,
    compare_bounds as compare_bounds,
)
from .paths.path import (
    Path as Path,
    PathPoint as PathPoint,
    load_path as load_path,
    path as path,
)
from .screening.ranges import (
    c_interval as c_interval,
    eps_interval as eps_interval,
    lam_interval as lam_interval,
)
from .screening.reduction import (
    Screening as Screening,
    Verdict as Verdict,
)
from .solvers.lambda_max import (
    lam_max as lam_max,
    lambda_max as lambda_max,
)
from .solvers.solution import (
    Solution as Solution,
)

__version__: str
