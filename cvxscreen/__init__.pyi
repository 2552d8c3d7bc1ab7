"""The public names and where they live: for type checkers, and for the package itself."""

from . import (
    bounds as bounds,
)
from . import (
    datasets as datasets,
)
from . import (
    errors as errors,
)
from . import (
    estimators as estimators,
)
from . import (
    multitask as multitask,
)
from . import (
    plots as plots,
)
from ._support.limits import (
    memory_limit as memory_limit,
)
from .api import (
    certify as certify,
)
from .api import (
    screen as screen,
)
from .api import (
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
)
from .core.duality import (
    reference_point as reference_point,
)
from .core.losses import (
    Losses as Losses,
)
from .core.problem import (
    Problem as Problem,
)
from .core.problem import (
    Quadratic as Quadratic,
)
from .cvxpy_plugin.inspection import (
    explain as explain,
)
from .cvxpy_plugin.inspection import (
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
)
from .data_changes.bootstrap import (
    bootstrap as bootstrap,
)
from .data_changes.leave_one_out import (
    LeaveOneOut as LeaveOneOut,
)
from .data_changes.leave_one_out import (
    leave_one_out as leave_one_out,
)
from .data_changes.reweight import (
    DataChange as DataChange,
)
from .data_changes.reweight import (
    Influence as Influence,
)
from .data_changes.reweight import (
    WeightRange as WeightRange,
)
from .data_changes.reweight import (
    add as add,
)
from .data_changes.reweight import (
    influence as influence,
)
from .data_changes.reweight import (
    remove as remove,
)
from .data_changes.reweight import (
    reweight as reweight,
)
from .data_changes.reweight import (
    weight_range as weight_range,
)
from .errors import (
    CvxscreenError as CvxscreenError,
)
from .errors import (
    InvalidInput as InvalidInput,
)
from .errors import (
    MissingDependency as MissingDependency,
)
from .errors import (
    NotCertified as NotCertified,
)
from .errors import (
    NotSaved as NotSaved,
)
from .errors import (
    NotScreenable as NotScreenable,
)
from .errors import (
    TooLarge as TooLarge,
)
from .errors import (
    UnknownName as UnknownName,
)
from .errors import (
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
)
from .models.linear import (
    sparse_svm as sparse_svm,
)
from .models.linear import (
    sparse_svr as sparse_svr,
)
from .models.linear import (
    svm as svm,
)
from .models.metric import (
    Comparisons as Comparisons,
)
from .models.metric import (
    factor_of as factor_of,
)
from .models.metric import (
    metric_of as metric_of,
)
from .models.metric import (
    pairs as pairs,
)
from .models.metric import (
    quadruplets as quadruplets,
)
from .models.metric import (
    rtlm as rtlm,
)
from .models.metric import (
    triplets as triplets,
)
from .models.multitask import (
    raso as raso,
)
from .multitask import (
    MultiTask as MultiTask,
)
from .multitask import (
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
)
from .paths.compare_bounds import (
    compare_bounds as compare_bounds,
)
from .paths.path import (
    Path as Path,
)
from .paths.path import (
    PathPoint as PathPoint,
)
from .paths.path import (
    load_path as load_path,
)
from .paths.path import (
    path as path,
)
from .screening.ranges import (
    c_interval as c_interval,
)
from .screening.ranges import (
    eps_interval as eps_interval,
)
from .screening.ranges import (
    lam_interval as lam_interval,
)
from .screening.reduction import (
    Screening as Screening,
)
from .screening.reduction import (
    Verdict as Verdict,
)
from .solvers.lambda_max import (
    lam_max as lam_max,
)
from .solvers.lambda_max import (
    lambda_max as lambda_max,
)
from .solvers.solution import (
    Solution as Solution,
)

__version__: str
